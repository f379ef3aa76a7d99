package zkdriver

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/dlock-go/dlock/driver/dsn"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

type settings struct {
	hosts  []string // "host:port"; an IPv6 address in brackets
	chroot string   // "" or "/a/b"

	login    bool // whether the data source name has a user and a password
	user     string
	password func() string // a function, so that printing settings shows no password

	sessionTimeout time.Duration
	connectTimeout time.Duration
	leaseMargin    time.Duration // how much earlier than the store's session the lease ends; 0: a quarter of the granted timeout
	tick           time.Duration // the ensemble's tickTime; 0: not stated
	listOnly       bool          // handover=list: a waiter lists the queue after each release
	sequenceLimit  int64
	layout         *layout // nil: dlock's own names of nodes
	acl            aclMode

	tls       bool
	files     dsn.TLS
	tlsConfig *tls.Config // from Driver.TLS

	dial func(ctx context.Context, network, addr string) (net.Conn, error) // nil: a net.Dialer dials
}

const (
	defaultPort           = "2181"
	defaultSessionTimeout = 10 * time.Second

	minSessionTimeout = 100 * time.Millisecond
	maxSessionTimeout = 24 * time.Hour

	// Package recipes gives up an attempt to connect after this time, so a
	// longer connect_timeout would have no effect.
	maxConnectTimeout = 30 * time.Second

	// maxSequence is the default of sequence_limit. ZooKeeper's counter is an
	// int32 that stops at its maximum (before 3.5 it wraps). The distance to
	// that maximum leaves room for clients that have not noticed the limit yet.
	maxSequence = 1<<31 - 1<<20
)

// aclMode says who may use the queues and contenders that a session makes.
type aclMode int

const (
	aclOpen    aclMode = iota // every client
	aclCreator                // only the user whom the server identifies with the session
	aclDigest                 // only the user of the data source name
)

func (m aclMode) String() string { return [...]string{"open", "creator", "digest"}[m] }

func (s *settings) connConfig() zkconn.Config {
	return zkconn.Config{
		Hosts: s.hosts, SessionTimeout: s.sessionTimeout, ConnectTimeout: s.connectTimeout,
		LeaseMargin: s.leaseMargin, Tick: s.tick, Dial: s.dial,
		TLS: zkconn.TLS{On: s.tls, Files: s.files, Config: s.tlsConfig},
	}
}
