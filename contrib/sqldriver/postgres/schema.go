package postgres

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

// schemaVersion is the version of schema.sql.
const schemaVersion = 1

//go:embed schema.sql
var schemaSQL string

// defaultSchema is the schema in the text of schema.sql.
const defaultSchema = "dlock"

var (
	schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)
	schemaWord = regexp.MustCompile(`\bdlock([._]|;)`)
)

// Statements returns the statements that create the tables and functions of the
// driver in a schema, which is "dlock" if the name is empty. An operator runs them if
// the user of the DSN may not create a schema. They may be run again at any time. The
// user then needs the rights that the statements at the end of the text would grant.
func Statements(schema string) string {
	return inSchema(schemaSQL, schema)
}

// inSchema returns a text of SQL with another schema. Each schema has its own channels
// for notices.
func inSchema(sql, schema string) string {
	if schema == "" || schema == defaultSchema {
		return sql
	}
	return schemaWord.ReplaceAllString(sql, schema+"$1")
}

// lockForSchema is the key of the advisory lock that processes take before they create
// the tables: the first bytes of "dlock" as a number.
const lockForSchema = 0x646c6f636b

// createStatements returns one text that creates the tables in one transaction.
func createStatements(schema string) string {
	return fmt.Sprintf("SELECT pg_advisory_xact_lock(%d);\n%s", lockForSchema, Statements(schema))
}

// grants returns the statements that let a user use the tables.
func grants(schema, user string) string {
	name := `"` + strings.ReplaceAll(user, `"`, `""`) + `"`
	return fmt.Sprintf("GRANT USAGE ON SCHEMA %[1]s TO %[2]s;\n"+
		"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %[1]s TO %[2]s;\n"+
		"GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA %[1]s TO %[2]s;\n"+
		"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %[1]s TO %[2]s;\n", schema, name)
}
