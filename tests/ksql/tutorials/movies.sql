-- Ratings, joined with the movies that they are about, and their average.
SET 'auto.offset.reset' = 'earliest';
CREATE TABLE movies (id INT PRIMARY KEY, title VARCHAR, release_year INT)
  WITH (KAFKA_TOPIC='movies', PARTITIONS=1, VALUE_FORMAT='JSON');
CREATE STREAM ratings (movie_id INT KEY, rating DOUBLE)
  WITH (KAFKA_TOPIC='ratings', PARTITIONS=1, VALUE_FORMAT='JSON');
INSERT INTO movies (id, title, release_year) VALUES (294, 'Die Hard', 1988);
INSERT INTO movies (id, title, release_year) VALUES (354, 'Tree of Life', 2011);
INSERT INTO ratings (movie_id, rating) VALUES (294, 8.2);
INSERT INTO ratings (movie_id, rating) VALUES (294, 8.5);
INSERT INTO ratings (movie_id, rating) VALUES (354, 9.9);
INSERT INTO ratings (movie_id, rating) VALUES (354, 9.7);
CREATE STREAM rated_movies AS
  SELECT ratings.movie_id AS id, title, rating
  FROM ratings LEFT JOIN movies ON ratings.movie_id = movies.id EMIT CHANGES;
CREATE TABLE average_ratings AS
  SELECT title, AVG(rating) AS average, COUNT(*) AS how_many FROM rated_movies GROUP BY title EMIT CHANGES;
