// Package fencing tests package fence on PostgreSQL, MariaDB and SQLite, at each
// isolation level, beside other statements that compare fencing tokens.
package fencing
