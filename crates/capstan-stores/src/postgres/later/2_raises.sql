-- Made up for tests: a release later nobody may write who does not know of the one before.
update capstan.meta set min_writer = schema;
