-- Sensors that read hot more than once in a window, and each reading that is out of range.
SET 'auto.offset.reset' = 'earliest';
CREATE STREAM readings (sensor VARCHAR KEY, reading INT)
  WITH (KAFKA_TOPIC='readings', VALUE_FORMAT='JSON', PARTITIONS=1);
INSERT INTO readings (sensor, reading) VALUES ('s1', 45);
INSERT INTO readings (sensor, reading) VALUES ('s1', 151);
INSERT INTO readings (sensor, reading) VALUES ('s2', 162);
INSERT INTO readings (sensor, reading) VALUES ('s1', 170);
CREATE STREAM strange AS
  SELECT sensor, reading, CASE WHEN reading > 160 THEN 'far' ELSE 'near' END AS how FROM readings
  WHERE reading NOT BETWEEN 0 AND 150 EMIT CHANGES;
CREATE TABLE hot AS
  SELECT sensor, COUNT(*) AS times, MAX(reading) AS highest FROM readings WINDOW TUMBLING (SIZE 1 DAY)
  WHERE reading > 150 GROUP BY sensor HAVING COUNT(*) > 1 EMIT CHANGES;
