-- Every write to `tasks` or `events` does a little less.
{cheaper}
