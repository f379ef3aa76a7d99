package zkdriver

import (
	"crypto/tls"
	"time"

	"github.com/dlock-go/dlock/driver/dsn"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// settings is what a data source name says.
type settings struct {
	hosts  []string // "host:port", an IPv6 address in brackets
	chroot string   // "" or "/a/b"

	login    bool // whether the data source name has a user and a password
	user     string
	password func() string // a function, so that printing settings shows no password

	sessionTimeout time.Duration
	connectTimeout time.Duration
	leaseMargin    time.Duration // how much earlier the lease ends than the session in the store; 0: a quarter of the granted timeout
	tick           time.Duration // the tickTime of the ensemble; 0: not stated
	listOnly       bool          // whether a waiter lists the queue after each release (handover=list)
	sequenceLimit  int64
	acl            aclMode

	tls       bool
	files     dsn.TLS
	tlsConfig *tls.Config // from Driver.TLS
}

const (
	defaultPort           = "2181"
	defaultSessionTimeout = 10 * time.Second

	minSessionTimeout = 100 * time.Millisecond
	maxSessionTimeout = 24 * time.Hour

	// maxConnectTimeout is when a client of package recipes ends an attempt to
	// connect. It then makes another one.
	maxConnectTimeout = 30 * time.Second

	// maxSequence is the first sequence that is not used. ZooKeeper's counter
	// is an int32 that stops at its maximum (or wraps, before 3.5). The
	// distance to that maximum leaves room for the nodes of clients that have
	// not yet noticed that maxSequence was reached.
	maxSequence = 1<<31 - 1<<20
)

// aclMode says which users may use the queues and contenders that a session
// makes.
type aclMode int

const (
	aclOpen    aclMode = iota // every client may use them
	aclCreator                // only the user whom the server recognises in the session that makes them
	aclDigest                 // only the user of the data source name
)

func (m aclMode) String() string { return [...]string{"open", "creator", "digest"}[m] }

// connConfig returns the part of the settings that concerns connections.
func (s *settings) connConfig() zkconn.Config {
	return zkconn.Config{
		Hosts: s.hosts, SessionTimeout: s.sessionTimeout, ConnectTimeout: s.connectTimeout,
		LeaseMargin: s.leaseMargin, Tick: s.tick,
		TLS: zkconn.TLS{On: s.tls, Files: s.files, Config: s.tlsConfig},
	}
}
