-- PostgreSQL no longer checks the hot tables at every write.
{unchecked}
