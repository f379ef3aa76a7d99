package natsdriver

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/dlocktest/castest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session/cas"
	"github.com/dlock-go/dlock/internal/history"
	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/internal/natstest"
	"github.com/dlock-go/dlock/internal/plant"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(leakcheck.After(natstest.Main(m)))
}

// open returns a connector for a new stream.
func open(t testing.TB, server *natstest.Server, parameters string) *connector {
	t.Helper()
	c, err := Driver{}.OpenConnector("nats://" + server.Addr() + "/" + server.Unique("test") + "?" + parameters)
	require.NoError(t, err)
	return c.(*connector)
}

func TestConformance(t *testing.T) {
	server := natstest.Shared(t)
	dlocktest.Run(t, config(func(t *testing.T, parameters string) *connector { return open(t, server, parameters) }))
}

func TestHistoriesAreLinearizable(t *testing.T) {
	if testing.Short() {
		t.Skip("records histories")
	}
	server := natstest.Shared(t)
	c := config(func(t *testing.T, parameters string) *connector { return open(t, server, parameters) })
	history.Run(t, history.Store{Of: "nats", Config: c, Histories: 1})
}

func TestConformanceOnACluster(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the kit again, on a cluster")
	}
	cluster := natstest.StartCluster(t, 3)
	dlocktest.Run(t, config(func(t *testing.T, parameters string) *connector {
		return open(t, cluster.Servers[0], "replicas=3&"+parameters)
	}))
}

func config(open func(t *testing.T, parameters string) *connector) dlocktest.Config {
	var lossy sync.Map // by test; nil while NewLossy makes the connector
	config := castest.Config(func(t *testing.T) func() cas.KV {
		parameters := "session_timeout=1s&empty_is_new=true"
		if _, ok := lossy.Load(t); ok {
			parameters = "session_timeout=1s"
		}
		c := open(t, parameters)
		lossy.Store(t, c)
		return func() cas.KV { return begun(t, c) }
	})
	config.NewLossy = func(t *testing.T) (driver.Connector, func()) {
		lossy.Store(t, nil)
		made := config.New(t)
		c, _ := lossy.Load(t)
		return made, func() { removeStream(t, c.(*connector)) }
	}
	config.Timeout = plant.CaseTimeout()
	return config
}

func removeStream(t testing.TB, c *connector) {
	require.NoError(t, begun(t, c).api(t.Context(), "STREAM.DELETE", "", struct{}{}, new(any)))
}

// begun returns a KV whose Generation method has succeeded.
func begun(t testing.TB, c *connector) *kv {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	kv := c.open()
	t.Cleanup(func() { _ = kv.Close() })
	_, err := kv.Generation(ctx)
	for errors.Is(err, driver.ErrUnavailable) && ctx.Err() == nil { // the machine is busy
		_, err = kv.Generation(ctx)
	}
	require.NoError(t, err)
	return kv
}
