-- Cards that pay three times within half a minute.
SET 'auto.offset.reset' = 'earliest';
CREATE STREAM transactions (card_number VARCHAR KEY, amount DECIMAL(8, 2), attempt_time BIGINT)
  WITH (KAFKA_TOPIC='transactions', VALUE_FORMAT='JSON', PARTITIONS=1, TIMESTAMP='attempt_time');
INSERT INTO transactions (card_number, amount, attempt_time) VALUES ('4970', 10.00, 1780000000000);
INSERT INTO transactions (card_number, amount, attempt_time) VALUES ('4970', 20.50, 1780000005000);
INSERT INTO transactions (card_number, amount, attempt_time) VALUES ('3724', 99.00, 1780000006000);
INSERT INTO transactions (card_number, amount, attempt_time) VALUES ('4970', 30.00, 1780000009000);
CREATE TABLE possible_fraud AS
  SELECT card_number, COUNT(*) AS attempts, SUM(amount) AS total, COLLECT_LIST(amount) AS amounts
  FROM transactions WINDOW TUMBLING (SIZE 30 SECONDS)
  GROUP BY card_number HAVING COUNT(*) >= 3
  EMIT CHANGES;
