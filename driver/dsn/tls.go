package dsn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
)

// TLS holds the TLS parameters of a data source name: PEM files, and the name
// expected in the server's certificate.
type TLS struct {
	CA         string // file of trusted CAs; empty means the system's
	Cert, Key  string // client certificate and key files; empty means none
	ServerName string // expected in the certificate; empty means the host
}

// AddTo makes p accept the parameters tls_ca, tls_cert, tls_key and
// tls_server_name, and store them in t.
func (t *TLS) AddTo(p Parameters) {
	p["tls_ca"], p["tls_cert"], p["tls_key"] = Text(&t.CA), Text(&t.Cert), Text(&t.Key)
	p["tls_server_name"] = Text(&t.ServerName)
}

// Check returns an error if there is a certificate without its key or a key
// without its certificate, or if any of the parameters is set although TLS is
// off. In that error, the argument on, such as "tls=true", says what is
// missing.
func (t TLS) Check(isOn bool, on string) error {
	if !isOn && t != (TLS{}) {
		return errors.New("a tls_ parameter without " + on)
	}
	if (t.Cert == "") != (t.Key == "") {
		return errors.New("parameters tls_cert and tls_key go together")
	}
	return nil
}

// Config reads the files and returns a TLS configuration. Call it for each
// connection, so that a session uses renewed certificates when it connects
// again. If a file cannot be used, the error is a [FileError].
func (t TLS) Config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		text, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, &FileError{fmt.Errorf("tls_ca: %w", err)}
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, &FileError{fmt.Errorf("tls_ca: no certificate in %s", t.CA)}
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, &FileError{fmt.Errorf("tls_cert and tls_key: %w", err)}
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// Untrusted reports whether a connection failed because of a certificate or a
// file: one side has rejected the certificate of the other, the server has no TLS,
// or there is a [FileError].
func Untrusted(err error) bool {
	var remote *net.OpError
	return errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(x509.HostnameError)) ||
		errors.As(err, new(tls.RecordHeaderError)) || errors.As(err, new(*FileError)) ||
		errors.As(err, &remote) && remote.Op == "remote error" // a TLS alert from the server
}

// FileError reports a file of [TLS] or [Secret] that is unusable until it
// changes.
type FileError struct{ Err error }

func (e *FileError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Err }
