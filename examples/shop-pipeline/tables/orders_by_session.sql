CREATE STREAMING TABLE orders_by_session
COMMENT 'Each order with the session that led to it'
AS SELECT o.order, o.session, s.source, s.started_at, o.ordered_at, o.cents
FROM STREAM placed_orders AS o
JOIN STREAM started_sessions AS s
  ON o.session = s.session AND o.ordered_at BETWEEN s.started_at AND s.started_at + INTERVAL 1 HOUR;
