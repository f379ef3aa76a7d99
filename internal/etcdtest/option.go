package etcdtest

import "github.com/dlock-go/dlock/internal/testenv"

// settings is how a server is set up.
type settings struct {
	scheme string   // the scheme of the client port: http or https
	args   []string // more arguments of etcd
	ctl    []string // more arguments of etcdctl

	hangingDisk bool
}

// Option changes how a server is set up.
type Option func(*settings)

// WithArgs adds arguments to the server's command line.
func WithArgs(args ...string) Option {
	return func(s *settings) { s.args = append(s.args, args...) }
}

// WithTLS makes the client port a TLS port. On that port the server shows the
// certificate. If mutual is true, the server refuses a client that shows no
// certificate of certs.CA.
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
