-- Which claims an agent holds that claims by itself.
CREATE TABLE agent_claims (
    worker {text} NOT NULL,
    task {text} NOT NULL,
    attempt {bigint} NOT NULL,
    PRIMARY KEY (worker, task, attempt)
){clustered};
