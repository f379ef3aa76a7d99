package zktest

import "github.com/dlock-go/dlock/internal/testenv"

// ClientAuth says whether a server requires client certificates.
type ClientAuth string

const (
	NoClientCert    ClientAuth = "none"
	NeedsClientCert ClientAuth = "need"
)

// WithTLS adds a TLS port, see [Server.SecureAddr]. The server presents the
// given certificate there, and trusts certificates signed by certs.CA.
func WithTLS(certs *testenv.Certs, server testenv.Pair, auth ClientAuth) Option {
	return func(s *settings) {
		s.tls = true
		s.config["secureClientPortAddress"] = "127.0.0.1"
		s.config["serverCnxnFactory"] = "org.apache.zookeeper.server.NettyServerCnxnFactory"
		s.config["ssl.keyStore.location"] = server.Both
		s.config["ssl.trustStore.location"] = certs.CA
		s.config["ssl.clientAuth"] = string(auth)
		// Otherwise the server would check that the client's certificate names
		// the client's address.
		s.config["ssl.hostnameVerification"] = "false"
	}
}
