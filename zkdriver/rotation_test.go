package zkdriver

import (
	"context"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/zktest"
)

func TestASessionSurvivesNewCertificates(t *testing.T) {
	t.Parallel()
	certs := testenv.NewCerts(t)
	server := zktest.Start(t, zktest.WithTLS(certs, certs.Server, zktest.NeedsClientCert))
	testenv.Rotation{
		Driver: func(func(context.Context) (string, error)) driver.Driver { return Driver{} },
		DSN: func(_ string, c *testenv.Certs) string {
			return "zk://" + server.SecureAddr() + tlsParams(c.CA, c.Client) + "&session_timeout=5m"
		},
		Certs:        certs,
		Certificates: server.Restart,
	}.Run(t)
}
