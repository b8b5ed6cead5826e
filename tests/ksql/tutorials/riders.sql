-- Where riders are now, who is near, and a view of a view.
SET 'auto.offset.reset' = 'earliest';
CREATE STREAM rider_locations (profile_id VARCHAR, latitude DOUBLE, longitude DOUBLE)
  WITH (KAFKA_TOPIC='locations', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE current_location AS
  SELECT profile_id, LATEST_BY_OFFSET(latitude) AS la, LATEST_BY_OFFSET(longitude) AS lo, COUNT(*) AS moves
  FROM rider_locations GROUP BY profile_id EMIT CHANGES;
CREATE TABLE riders_near AS
  SELECT ROUND(GEO_DISTANCE(la, lo, 37.4133, -122.1162), -1) AS distance, COLLECT_LIST(profile_id) AS riders,
         COUNT(*) AS how_many
  FROM current_location GROUP BY ROUND(GEO_DISTANCE(la, lo, 37.4133, -122.1162), -1);
INSERT INTO rider_locations (profile_id, latitude, longitude) VALUES ('c2309eec', 37.7877, -122.4205);
INSERT INTO rider_locations (profile_id, latitude, longitude) VALUES ('18f4ea86', 37.3903, -122.0643);
INSERT INTO rider_locations (profile_id, latitude, longitude) VALUES ('4ab5cbad', 37.3952, -122.0813);
INSERT INTO rider_locations (profile_id, latitude, longitude) VALUES ('4ab5cbad', 37.7857, -122.4011);
