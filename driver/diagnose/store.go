package diagnose

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Store describes a store to [Run]. Only Connector is required.
type Store struct {
	// Connector makes the session with which Run locks a queue.
	Connector driver.Connector
	// Timeout is the session timeout that the connector asks for. Zero means
	// that it is not known.
	Timeout time.Duration
	// Grace is how long Connect may wait, if the store may have lost data, for
	// the leases of earlier sessions to end.
	Grace time.Duration

	// Hosts are the servers, as host:port. It is empty if the store is not
	// reached over a network.
	Hosts []string
	// Local says what the store is if it has no Hosts, such as "the file /x".
	Local string
	// TLS returns the TLS configuration for connections to a host. It must set
	// ServerName if the certificate is to be verified. Nil means that TLS is
	// off.
	TLS func(host string) (*tls.Config, error)
	// StartTLS asks the server for a TLS handshake, in protocols that begin
	// without encryption. Nil means that connections begin with the handshake.
	// It returns [ErrNoTLS] if the server has no TLS.
	StartTLS func(conn net.Conn) error
	// OptionalTLS reports whether connections continue without TLS if StartTLS
	// returns ErrNoTLS.
	OptionalTLS bool
	// Password reports whether a password is sent to the server.
	Password bool

	// Explain returns the check that an error of the session concerns, and
	// advice on what to do. If a result is empty, Run chooses the check or the
	// advice itself. Explain may be nil.
	Explain func(err error) (check driver.Check, advice string)
	// Outage returns two times. A holder that is cut off keeps its locks for
	// at least the time kept. Locks always survive outages of up to survived,
	// which is shorter, because the client must also reconnect in time. Outage
	// is nil for drivers that send heartbeats by [driver.Lease.Run].
	Outage func(s driver.Session) (kept, survived time.Duration)
	// NoClock says why the store's clock cannot be read. It is empty if the
	// clock can be read.
	NoClock string
	// Inspect makes the checks [driver.CheckSettings] and
	// [driver.CheckSequences], with the session of Run or on connections of its
	// own. If Inspect reports nothing for one of them, Run reports the level
	// [driver.Unknown]. Inspect may be nil.
	Inspect func(ctx context.Context, s driver.Session, report func(driver.Finding))
	// Remove removes what an empty queue leaves behind in the store. It is nil
	// if an empty queue leaves nothing behind.
	Remove func(ctx context.Context, s driver.Session, queue string) error
}

// ErrNoTLS is returned by [Store.StartTLS] if the server has no TLS.
var ErrNoTLS = errors.New("the server has no TLS")
