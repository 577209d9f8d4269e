-- What is proposed under a claim: one row each, so that none overwrites another.
CREATE TABLE proposals (
    task {text} NOT NULL,
    attempt {bigint} NOT NULL,
    number {bigint} NOT NULL CHECK (number > 0),
    data {text} NOT NULL,
    PRIMARY KEY (task, attempt, number)
){clustered};
