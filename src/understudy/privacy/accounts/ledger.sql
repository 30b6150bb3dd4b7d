CREATE TABLE ledger (id TEXT NOT NULL, holder TEXT NOT NULL);
CREATE TABLE entry (id INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, run TEXT NOT NULL,
                    what TEXT NOT NULL, people INTEGER);  -- NULL: everyone
CREATE INDEX entry_run ON entry (run);  -- for speed alone: files without it are as good
CREATE TABLE budget (entry INTEGER PRIMARY KEY REFERENCES entry, epsilon REAL NOT NULL, delta REAL NOT NULL,
                     against TEXT NOT NULL);
CREATE TABLE event (id INTEGER PRIMARY KEY, text TEXT NOT NULL, view TEXT NOT NULL,
                    everyone INTEGER NOT NULL DEFAULT 0,  -- uses charged to everyone
                    peak INTEGER NOT NULL DEFAULT 0,      -- the most uses charged to any one person besides
                    UNIQUE (text, view));
CREATE TABLE line (entry INTEGER NOT NULL REFERENCES entry, event INTEGER NOT NULL REFERENCES event,
                   count INTEGER NOT NULL CHECK (count > 0),
                   total INTEGER NOT NULL,  -- everyone + peak, after this entry
                   PRIMARY KEY (entry, event)) WITHOUT ROWID;
CREATE TABLE tally (person TEXT NOT NULL, event INTEGER NOT NULL REFERENCES event, run TEXT NOT NULL,
                    count INTEGER NOT NULL CHECK (count > 0), PRIMARY KEY (person, event, run)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS terms (run TEXT NOT NULL, terms TEXT NOT NULL,  -- how the run's price is to be read, in JSON
                                  PRIMARY KEY (run, terms)) WITHOUT ROWID;
CREATE TRIGGER no_entry_DELETE BEFORE DELETE ON entry BEGIN SELECT RAISE(ABORT, 'a ledger only grows'); END;
CREATE TRIGGER no_entry_UPDATE BEFORE UPDATE ON entry BEGIN SELECT RAISE(ABORT, 'a ledger only grows'); END;
CREATE TRIGGER no_line_DELETE BEFORE DELETE ON line BEGIN SELECT RAISE(ABORT, 'a ledger only grows'); END;
CREATE TRIGGER no_line_UPDATE BEFORE UPDATE ON line BEGIN SELECT RAISE(ABORT, 'a ledger only grows'); END;
