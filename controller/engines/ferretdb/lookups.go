package main

import (
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"

	_ "modernc.org/sqlite"
)

// What FerretDB looks a document up by. The index it makes itself is on the same in other words, and so never used:
// a lookup takes the longer, the more documents there are.
const _id = "_ferretdb_sjson->'$._id'"

const tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, 10) <> '_ferretdb_'"

// lookups gives each collection an index when it is first written to. For one writer at a time.
type lookups struct {
	data    string
	logger  *slog.Logger
	indexed map[string]bool
}

func newLookups(data string, logger *slog.Logger) *lookups {
	return &lookups{data: data, logger: logger, indexed: map[string]bool{}}
}

// after is called when a command that writes to the collection was answered.
func (l *lookups) after(command, collection string) {
	if command == "drop" {
		delete(l.indexed, collection)
		return
	}
	if l.indexed[collection] {
		return
	}
	l.indexed[collection] = true
	if err := l.index(); err != nil { // without it all is right, but slow
		l.logger.Error("no index for lookups", "collection", collection, "error", err)
	}
}

func (l *lookups) index() error {
	files, err := filepath.Glob(filepath.Join(l.data, "*.sqlite"))
	for _, file := range files {
		if err = indexFile(file); err != nil {
			break
		}
	}
	return err
}

func indexFile(file string) error {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)")
	if err != nil {
		return err
	}
	defer db.Close()
	rows, err := db.Query(tables)
	if err != nil {
		return err
	}
	defer rows.Close()
	var statements []string
	for rows.Next() {
		var name string
		if err = rows.Scan(&name); err != nil {
			return err
		}
		statements = append(statements, fmt.Sprintf("CREATE INDEX IF NOT EXISTS %q ON %q (%s)", name+"_lookups", name, _id))
	}
	if err = rows.Err(); err != nil {
		return err
	}
	for _, each := range statements {
		if _, err = db.Exec(each); err != nil {
			return err
		}
	}
	return nil
}
