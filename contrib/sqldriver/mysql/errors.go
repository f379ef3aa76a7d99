package mysql

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/go-sql-driver/mysql"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// again lists errors that rolled back the transaction. An immediate retry may
// succeed.
var again = []uint16{
	1020, // a row has changed since it was read
	1213, // a deadlock or a Galera conflict
	1412, // the definition of a table has changed
}

// temporary lists the numbers of errors after which a retry may succeed.
var temporary = append([]uint16{
	1021, 1030, 1037, 1038, 1041, 1114, 1135, // a disk or the memory is full
	1040, 1203, 1226, // too many connections or statements
	1047,                         // the Galera member is not ready
	1053, 1077, 1078, 1079, 1080, // the server stops
	1158, 1159, 1160, 1161, 1152, 1184, // network errors
	1180, 1181, // an error during a commit or a rollback
	1205,                         // a row lock was not available
	1290, 1792, 1836, 3100, 3101, // the server is read-only or left its group
	1317, 1927, 1969, 3024, 3169, 4031, // the statement or the connection was ended
	2002, 2003, 2006, 2013, // a proxy has no connection to its server
	9001, 9501, // ProxySQL or RDS Proxy timed out
}, again...)

// unchanged lists errors after which a transaction has surely changed nothing.
var unchanged = append([]uint16{
	1040, 1203, 1226, 1044, 1045, 1049, 1129, 1130, 1698, // the server accepts no connection
	1064, 1142, 1143, 1146, 1305, 1318, 1370, // the procedure is missing or denied
	1205,             // the procedure's error handler has rolled back
	1290, 1792, 1836, // the server is read-only
	1406, // a value is too long
	1568, // the connection is in a transaction already
	1665, // the server can't log the change
}, again...)

func number(err error) uint16 {
	var server *mysql.MySQLError
	if errors.As(err, &server) {
		return server.Number
	}
	return 0
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
	if n := number(err); n != 0 {
		if n == 1568 {
			err = fmt.Errorf("the program has left a connection of its *sql.DB in a transaction: %w", err)
		}
		if slices.Contains(temporary, n) {
			err = fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
		}
		if n == 1045 || n == 1698 { // access denied
			err = session.Login(err)
		}
		if slices.Contains(unchanged, n) {
			err = session.Refused(err)
		}
		return err
	}
	if permanent(err) {
		return session.Refused(session.Login(err))
	}
	if errors.Is(err, sqldriver.ErrBadConn) || dialFailed(err) { // ErrBadConn: nothing was written yet
		err = session.Refused(err)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, ctx.Err(), err)
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

// dialFailed reports whether the client failed to connect. Such errors contain
// the server's address.
func dialFailed(err error) bool {
	var network *net.OpError
	return errors.As(err, &network) && network.Op == "dial"
}

// permanent reports whether the client would refuse to send the statement
// again.
func permanent(err error) bool {
	return sqlstore.Untrusted(err) || slices.ContainsFunc([]error{mysql.ErrNoTLS, mysql.ErrPktTooLarge, mysql.ErrCleartextPassword, mysql.ErrNativePassword,
		mysql.ErrOldPassword, mysql.ErrUnknownPlugin, mysql.ErrOldProtocol}, func(target error) bool { return errors.Is(err, target) })
}

func missing(err error) bool { return slices.Contains([]uint16{1049, 1146, 1305}, number(err)) }

func denied(err error) bool {
	return slices.Contains([]uint16{1044, 1142, 1143, 1227, 1370, 1419}, number(err))
}
