-- Page views, enriched with who looked.
SET 'auto.offset.reset' = 'earliest';
CREATE TABLE users (userid VARCHAR PRIMARY KEY, gender VARCHAR, regionid VARCHAR)
  WITH (KAFKA_TOPIC='users', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM pageviews (userid VARCHAR KEY, viewtime BIGINT, pageid VARCHAR)
  WITH (KAFKA_TOPIC='pageviews', VALUE_FORMAT='JSON', PARTITIONS=1);
INSERT INTO users (userid, gender, regionid) VALUES ('User_1', 'FEMALE', 'Region_9');
INSERT INTO users (userid, gender, regionid) VALUES ('User_2', 'MALE', 'Region_8');
INSERT INTO pageviews (userid, viewtime, pageid) VALUES ('User_1', 1, 'Page_7');
INSERT INTO pageviews (userid, viewtime, pageid) VALUES ('User_2', 2, 'Page_3');
INSERT INTO pageviews (userid, viewtime, pageid) VALUES ('User_9', 3, 'Page_3');
CREATE STREAM pageviews_enriched AS
  SELECT pageviews.userid AS userid, pageid, regionid, gender
  FROM pageviews LEFT JOIN users ON pageviews.userid = users.userid
  EMIT CHANGES;
CREATE STREAM pageviews_female AS
  SELECT * FROM pageviews_enriched WHERE gender = 'FEMALE' AND regionid LIKE '%_9' EMIT CHANGES;
