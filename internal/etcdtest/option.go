package etcdtest

import "github.com/dlock-go/dlock/internal/testenv"

// settings configure a server.
type settings struct {
	scheme string   // of the client port: http or https
	args   []string // additional arguments for etcd
	ctl    []string // additional arguments for etcdctl

	hangingDisk bool
}

// Option configures a server.
type Option func(*settings)

// WithArgs adds command-line arguments for the server.
func WithArgs(args ...string) Option {
	return func(s *settings) { s.args = append(s.args, args...) }
}

// WithTLS makes the server use TLS on its client port, with the given
// certificate. If mutual is true, clients must present a certificate signed by
// certs.CA.
func WithTLS(certs *testenv.Certs, server testenv.Pair, mutual bool) Option {
	return func(s *settings) {
		s.scheme = "https"
		s.args = append(s.args, "--cert-file", server.Cert, "--key-file", server.Key)
		if mutual {
			s.args = append(s.args, "--client-cert-auth", "--trusted-ca-file", certs.CA)
		}
		s.ctl = append(s.ctl, "--cacert", certs.CA, "--cert", certs.Client.Cert, "--key", certs.Client.Key)
	}
}
