package postgres

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// readOnly is the error code of a server, such as a standby, that can't write.
const readOnly = "25006"

// noRight means a missing privilege. A procedure may return it even after its
// commit.
const noRight = "42501"

// temporary lists error codes, and classes of codes, after which a retry may
// succeed. See appendix A of the PostgreSQL manual.
var temporary = []string{
	"08", // connection errors
	readOnly,
	"25P04", // a transaction that took too long
	"40",    // a deadlock, or a conflict with another transaction
	"53",    // too many connections, or a full disk
	"54000", // the queue of notices is full
	"55000", // the server is a standby
	"55P03", // a lock that was not available
	"57014", // a statement was cancelled or timed out
	"57P",   // the server stops or starts
	"58",    // system errors, such as a failed read
}

// markError makes statement errors match those of packages session and driver,
// such as driver.ErrUnavailable.
func markError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if busy := new(sqlstore.BusyError); errors.As(err, &busy) {
		return busy
	}
	err = told{err, refusal.ReplaceAllString(err.Error(), "$1")}
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return markServerError(server, err)
	}
	var foreign interface{ SQLState() string }
	if errors.As(err, &foreign) {
		return fmt.Errorf("the *sql.DB has to use package stdlib of github.com/jackc/pgx/v5, and this error is of another client: %w", err)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, ctx.Err(), err)
	}
	if untrusted(err) {
		return session.Refused(session.Login(err))
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

// told replaces the text of an error.
type told struct {
	error
	text string
}

func (t told) Error() string { return t.text }
func (t told) Unwrap() error { return t.error }

// refusal matches the line about refused TLS if pgx has then tried without TLS.
var refusal = regexp.MustCompile(`\n.*tls error: server refused TLS connection(\n)`)

// unchanged lists errors, other than noRight, that prove that a statement
// changed nothing.
var unchanged = []string{
	"25", "26", "2D", // wrong state of the server or connection
	"3F000", "42", // something is missing or denied
	"23", "40", "54000", "55P03", "0A000", "P0",
}

// markServerError classifies an error sent by the server. A FATAL error may
// follow a commit.
func markServerError(server *pgconn.PgError, err error) error {
	if server.Code == readOnly {
		err = fmt.Errorf("%w: the server is a standby, or default_transaction_read_only is on", err)
	}
	if hasPrefix(server.Code, temporary) {
		err = fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	if strings.HasPrefix(server.Code, "28") { // a wrong password, for example
		err = session.Login(err)
	}
	isError := server.Severity == "ERROR" || server.SeverityUnlocalized == "ERROR"
	if isError && hasPrefix(server.Code, unchanged) && server.Code != noRight {
		err = session.Refused(err)
	}
	return err
}

func hasPrefix(code string, classes []string) bool {
	return slices.ContainsFunc(classes, func(class string) bool { return strings.HasPrefix(code, class) })
}

// untrusted reports whether the client would refuse to send the statement
// again.
func untrusted(err error) bool {
	return sqlstore.Untrusted(err) || strings.Contains(err.Error(), "server refused TLS connection") ||
		strings.Contains(err.Error(), "must be run with standard_conforming_strings=on")
}

func missing(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && slices.Contains([]string{"3D000", "3F000", "42P01", "42883"}, server.Code)
}

func denied(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Code == noRight
}
