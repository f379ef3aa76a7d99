package mysql

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

// Statements returns the SQL that creates the driver's tables and procedures in
// a database, for the programs mariadb and mysql. An operator runs it if the
// driver's user may not create tables or procedures. The error of Connect lists
// what to grant that user. The statements are idempotent, also when run
// concurrently.
func Statements(database string) string {
	return "USE " + quote(database) + ";\n\n" + schemaSQL
}

func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

func statements() (all []string) {
	text := strings.ReplaceAll(strings.ReplaceAll(schemaSQL, "DELIMITER //\n", ""), "DELIMITER ;\n", "")
	for statement := range strings.SplitSeq(text, "\n//\n") {
		if strings.TrimSpace(statement) != "" {
			all = append(all, statement)
		}
	}
	return all
}

var creates = regexp.MustCompile(`(?m)^CREATE (TABLE|PROCEDURE) IF NOT EXISTS (\w+)`)

func grants(database, user string) string {
	var text strings.Builder
	for _, match := range creates.FindAllStringSubmatch(schemaSQL, -1) {
		right, kind := "SELECT, INSERT, UPDATE, DELETE", ""
		if match[1] == "PROCEDURE" {
			right, kind = "EXECUTE", "PROCEDURE "
		}
		fmt.Fprintf(&text, "GRANT %s ON %s%s.%s TO %s;\n", right, kind, quote(database), match[2], user)
	}
	return text.String()
}
