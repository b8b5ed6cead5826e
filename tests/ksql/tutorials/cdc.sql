-- Orders that are joined with a table of customers which changes and loses rows.
SET 'auto.offset.reset' = 'earliest';
CREATE STREAM customer_changes (id INT KEY, name VARCHAR, email VARCHAR)
  WITH (KAFKA_TOPIC='db.customers', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR, email VARCHAR)
  WITH (KAFKA_TOPIC='db.customers', VALUE_FORMAT='JSON');
CREATE TABLE orders (order_id INT PRIMARY KEY, customer_id INT, total DOUBLE)
  WITH (KAFKA_TOPIC='db.orders', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE orders_enriched AS
  SELECT order_id, customer_id, total, name FROM orders JOIN customers ON orders.customer_id = customers.id
  EMIT CHANGES;
INSERT INTO customers (id, name, email) VALUES (1, 'Ana', 'ana@example.com');
INSERT INTO customers (id, name, email) VALUES (2, 'Rui', 'rui@example.com');
INSERT INTO orders (order_id, customer_id, total) VALUES (10, 1, 5.0);
INSERT INTO orders (order_id, customer_id, total) VALUES (11, 2, 7.5);
INSERT INTO customers (id, name, email) VALUES (1, 'Ana Maria', 'ana@example.com');
