-- What a person should know of a build although nothing is wrong: a download under way, or who listens instead.
ALTER TABLE dataset_builds ADD COLUMN notice TEXT NOT NULL DEFAULT '';
