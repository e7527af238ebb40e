-- The property writes every change of a row into the log revenue, with the minute and the source as the key.
CREATE MATERIALIZED VIEW revenue_per_minute
COMMENT 'Orders and revenue per minute, by what brought the customer to the shop'
TBLPROPERTIES ('strandline.log' = 'revenue')
AS SELECT date_trunc('MINUTE', ordered_at) AS minute, source, count(*) AS orders, sum(cents) AS cents
FROM orders_by_session
GROUP BY date_trunc('MINUTE', ordered_at), source;
