package redisdriver

import (
	"crypto/tls"
	"fmt"
	"net"

	"github.com/dlock-go/dlock/driver/dsn"
)

// tlsFiles is reread for each connection, so that certificates can be replaced
// without a restart.
type tlsFiles struct {
	dsn.TLS
	skipVerify bool
}

func (f *tlsFiles) config(addr string) (*tls.Config, error) {
	c, err := f.Config()
	if err != nil {
		return nil, err
	}
	c.InsecureSkipVerify = f.skipVerify
	if c.ServerName == "" {
		if c.ServerName, _, err = net.SplitHostPort(addr); err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
	}
	return c, nil
}
