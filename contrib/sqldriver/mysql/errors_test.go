package mysql

import (
	"context"
	"crypto/x509"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

func TestMarks(t *testing.T) {
	server := func(number uint16) error {
		return fmt.Errorf("wrapped: %w", &mysql.MySQLError{Number: number, Message: "m"})
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, test := range []struct {
		ctx                  context.Context
		err                  error
		unavailable, refused bool
	}{
		{err: mysql.ErrInvalidConn, unavailable: true},
		{err: mysql.ErrBusyBuffer, unavailable: true},
		{err: io.ErrUnexpectedEOF, unavailable: true},
		{err: context.Canceled, ctx: ended, unavailable: true},
		{err: sqldriver.ErrBadConn, unavailable: true, refused: true},
		{err: &net.OpError{Op: "dial", Err: io.EOF}, unavailable: true, refused: true},
		{err: &net.OpError{Op: "read", Err: io.EOF}, unavailable: true},
		{err: mysql.ErrNoTLS, refused: true},
		{err: mysql.ErrPktTooLarge, refused: true},
		{err: x509.UnknownAuthorityError{}, refused: true},
		{err: server(1040), unavailable: true, refused: true}, // too many connections
		{err: server(1203), unavailable: true, refused: true}, // the user has too many connections
		{err: server(1213), unavailable: true, refused: true}, // a deadlock
		{err: server(1205), unavailable: true, refused: true}, // a lock was not available
		{err: server(1290), unavailable: true, refused: true}, // read-only
		{err: server(1317), unavailable: true},                // interrupted, perhaps after the commit
		{err: server(1180), unavailable: true},                // an error during the commit
		{err: server(1045), refused: true},                    // a wrong password
		{err: server(1406), refused: true},                    // a value is too long
		{err: server(2013), unavailable: true},                // a proxy has lost its server
		{err: server(9001), unavailable: true},                // a proxy can't reach its server
		{err: server(1105)},                                   // an unknown error
	} {
		if test.ctx == nil {
			test.ctx = context.Background()
		}
		err := markError(test.ctx, test.err)
		if errors.Is(err, driver.ErrUnavailable) != test.unavailable || isRefused(err) != test.refused || !errors.Is(err, test.err) {
			t.Errorf("%v becomes %v", test.err, err)
		}
	}
	if err := markError(ended, io.EOF); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if markError(ended, nil) != nil {
		t.Error("an error for nil")
	}
}

func isRefused(err error) bool {
	return errors.As(err, reflect.New(reflect.TypeOf(session.Refused(nil))).Interface())
}
