package mysql

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

// Statements returns the statements that create the tables and procedures of the
// driver in a database, in the form that the programs mariadb and mysql read. An
// operator runs them if the user of the DSN may not create tables or procedures. They
// may be run again at any time, by several users at once.
func Statements(database string) string {
	return "USE " + quote(database) + ";\n\n" + schemaSQL
}

// quote returns a name as SQL needs it.
func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// statements returns the statements of schema.sql, each as one text for the server.
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

// grants returns the statements that let a user use the tables and procedures.
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
