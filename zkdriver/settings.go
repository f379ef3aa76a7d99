package zkdriver

import (
	"crypto/tls"
	"time"

	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// settings is what a data source name says.
type settings struct {
	hosts  []string // "host:port", an IPv6 address in brackets
	chroot string   // "" or "/a/b"

	login    bool // whether user and password were given
	user     string
	password func() string // a function, because no way to print it shows what it returns

	sessionTimeout time.Duration
	connectTimeout time.Duration
	leaseMargin    time.Duration // 0: a quarter of the negotiated timeout
	tick           time.Duration // of the ensemble; 0: not stated
	listOnly       bool          // a hand-over is found out by listing: no Release
	sequenceLimit  int64
	acl            aclMode

	tls           bool
	tlsCA         string
	tlsCert       string
	tlsKey        string
	tlsServerName string
	tlsConfig     *tls.Config // from Driver.TLS
}

const (
	defaultPort           = "2181"
	defaultSessionTimeout = 10 * time.Second

	minSessionTimeout = 100 * time.Millisecond
	maxSessionTimeout = 24 * time.Hour

	// maxSequence is the first sequence that is not used any more. ZooKeeper's counter is an
	// int32 that sticks at its end (or wraps, before 3.5), so there is room for the nodes of
	// those who have not yet noticed.
	maxSequence = 1<<31 - 1<<20
)

// aclMode says who may use the queues and contenders that a session makes.
type aclMode int

const (
	aclOpen    aclMode = iota // everybody
	aclCreator                // whoever the server knows the creator as
	aclDigest                 // the user of the data source name
)

// logins returns what a session logs in as, in the form of zkconn.Config.Logins.
func (s *settings) logins(x secret) [][]byte {
	var all [][]byte
	if s.login {
		all = append(all, []byte(s.user+":"+s.password()))
	}
	if x.set() {
		all = append(all, x.auth())
	}
	return all
}

// connConfig returns the part of the settings that concerns the connection.
func (s *settings) connConfig() zkconn.Config {
	return zkconn.Config{
		Hosts: s.hosts, SessionTimeout: s.sessionTimeout, ConnectTimeout: s.connectTimeout,
		LeaseMargin: s.leaseMargin, Tick: s.tick,
		TLS: zkconn.TLS{
			On: s.tls, CA: s.tlsCA, Cert: s.tlsCert, Key: s.tlsKey, ServerName: s.tlsServerName, Config: s.tlsConfig,
		},
	}
}

// certified tells whether the server may know this client by a certificate.
func (s *settings) certified() bool { return s.tlsCert != "" || s.tlsConfig != nil }

// keepsSecret tells whether sessions have a secret. In an ACL of all the names by which the
// server knows a client that of the secret would be among them, which nobody else has.
func (s *settings) keepsSecret() bool {
	return !s.listOnly && !(s.acl == aclCreator && s.certified())
}
