-- How a clip is said, in a word of the person's; empty where they said that it has no style.
ALTER TABLE dataset_edits ADD COLUMN style TEXT;
