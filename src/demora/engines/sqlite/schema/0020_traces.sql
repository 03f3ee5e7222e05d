-- online
-- The W3C trace context of the span that added the job; null: it was not traced.
alter table jobs add column traceparent text;
