-- What the gates say of a clip: a tenth of its details, and the part that another clip's edit may change.
CREATE TABLE dataset_judgements (
    dataset TEXT NOT NULL REFERENCES datasets (name) ON DELETE CASCADE,
    key TEXT NOT NULL,
    judgement TEXT NOT NULL,
    PRIMARY KEY (dataset, key)
) WITHOUT ROWID;
