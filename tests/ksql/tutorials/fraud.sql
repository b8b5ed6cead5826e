-- Cards that pay three times within a day.
SET 'auto.offset.reset' = 'earliest';
CREATE STREAM transactions (card_number VARCHAR KEY, amount DECIMAL(8, 2), shop VARCHAR)
  WITH (KAFKA_TOPIC='transactions', VALUE_FORMAT='JSON', PARTITIONS=1);
INSERT INTO transactions (card_number, amount, shop) VALUES ('4970', 10.00, 'a');
INSERT INTO transactions (card_number, amount, shop) VALUES ('4970', 20.50, 'b');
INSERT INTO transactions (card_number, amount, shop) VALUES ('3724', 99.00, 'a');
INSERT INTO transactions (card_number, amount, shop) VALUES ('4970', 30.00, 'c');
CREATE TABLE possible_fraud AS
  SELECT card_number, COUNT(*) AS attempts, SUM(amount) AS total, COLLECT_LIST(amount) AS amounts
  FROM transactions WINDOW TUMBLING (SIZE 1 DAY)
  GROUP BY card_number HAVING COUNT(*) >= 3
  EMIT CHANGES;
