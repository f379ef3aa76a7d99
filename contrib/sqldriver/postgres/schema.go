package postgres

import (
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
)

//go:embed schema.sql
var schemaFile string

var (
	schemaVersion = sqlstore.Version(schemaFile)
	schemaSQL     = strings.Replace(schemaFile, "VERSION_OF_THIS_FILE", strconv.Itoa(schemaVersion), 1)
)

// defaultSchema is the schema named in schema.sql.
const defaultSchema = "dlock"

var (
	schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)
	schemaWord = regexp.MustCompile(`\bdlock([.;])`)
)

// Statements returns the SQL that creates the driver's tables and functions in
// a schema, "dlock" by default. An operator runs it in one transaction if the
// driver's user may not create a schema. The error of Connect lists what to
// grant that user. The statements are idempotent.
func Statements(schema string) string {
	return inSchema(schemaSQL, schema)
}

// inSchema returns the SQL text for another schema, also in the names of NOTIFY
// channels.
func inSchema(sql, schema string) string {
	if schema == "" || schema == defaultSchema {
		return sql
	}
	return strings.ReplaceAll(schemaWord.ReplaceAllString(sql, `"`+schema+`"$1`), "'dlock_'", "'"+schema+"_'")
}

// lockForSchema is the key of createTables' advisory lock: "dlock" in ASCII.
const lockForSchema = 0x646c6f636b

func grants(schema, user string) string {
	name := `"` + strings.ReplaceAll(user, `"`, `""`) + `"`
	return fmt.Sprintf("GRANT USAGE ON SCHEMA \"%[1]s\" TO %[2]s;\n"+
		"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA \"%[1]s\" TO %[2]s;\n"+
		"GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA \"%[1]s\" TO %[2]s;\n"+
		"GRANT EXECUTE ON ALL ROUTINES IN SCHEMA \"%[1]s\" TO %[2]s;\n", schema, name)
}
