-- All ready tasks in the order in which they are claimed, whatever their lane. On an expression, so
-- that PostgreSQL never chooses it for a statement about one lane.
CREATE INDEX tasks_in_order ON tasks ((rank + 0)) WHERE state = 'active'
