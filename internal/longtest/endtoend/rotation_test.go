package endtoend_test

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/zktest"
	"github.com/dlock-go/dlock/recipes"
)

// A certificate and its key are replaced one after the other, so that they do
// not match for a moment. A client that needs a new session at that moment must
// retry.
func TestAWaiterOutlivesTheReplacementOfItsCertificate(t *testing.T) {
	t.Parallel()
	certs := testenv.NewCerts(t)
	server := zktest.Start(t, zktest.WithTLS(certs, certs.Server, zktest.NeedsClientCert))
	w := newWorldOn(t, server)
	replace := func(path, from string) {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, text, 0o600))
	}
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "crt.pem"), filepath.Join(dir, "key.pem")
	replace(cert, certs.Client.Cert)
	replace(key, certs.Client.Key)
	var refused atomic.Int64
	proxy := zktest.NewProxy(t, server.SecureAddr())
	c := w.open(w.dsn(proxy.Addr(), "session_timeout="+quiet.String()+"&tls=true&tls_ca="+url.PathEscape(certs.CA)+
		"&tls_cert="+url.PathEscape(cert)+"&tls_key="+url.PathEscape(key)), "web2",
		dlock.WithTrace(&recipes.Trace{Connected: func(_ context.Context, i recipes.ConnectedInfo) {
			if i.Err != nil {
				refused.Add(1)
			}
		}}))
	holder := w.lock(w.client("web1")).granted()
	k := w.lock(c)
	k.waitsBehind(holder.Node())

	replace(cert, certs.Server.Cert)
	proxy.Refuse() // keep the client away until its session has expired
	require.NoError(t, zktest.Expire(server.Addr(), w.owner("q", k.node()), nil))
	proxy.Heal()
	w.eventually(func() bool { return refused.Load() > 1 }, func() string { return "the client does not read the files again" })
	k.waits()
	replace(key, certs.Server.Key)
	w.eventually(func() bool { return len(k.nodes()) == 2 }, func() string { return "the waiter does not queue again" })
	w.unlock(holder)
	w.unlock(k.granted())
}

func (w *fixture) owner(queue, name string) int64 {
	w.Helper()
	_, stat, err := w.raw.Get(w.path(queue) + "/" + name)
	require.NoError(w, err)
	return stat.EphemeralOwner
}
