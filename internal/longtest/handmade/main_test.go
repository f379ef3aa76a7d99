package handmade

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/internal/pgtest"
)

// TestMain also runs the processes that tests start.
func TestMain(m *testing.M) {
	redis.SetLogger(silent{})
	slog.SetDefault(slog.New(slog.DiscardHandler))
	if text := os.Getenv(childVariable); text != "" {
		os.Exit(runChild(text))
	}
	os.Exit(leakcheck.After(pgtest.Main(m)))
}

// silent drops what go-redis writes when a dial fails.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// errStale is the answer of a resource to a writer that a later writer has overtaken.
var errStale = errors.New("stale token")

// A resource is what the lock protects, for example another service. It compares the
// tokens of its writers. A lock without tokens has only 0 to offer, so the resource
// cannot refuse any of its writers.
type resource struct {
	token   int64 // the highest that a writer has shown
	writers []string
}

func (r *resource) write(writer string, token int64) error {
	if token < r.token {
		return errStale
	}
	r.token = token
	r.writers = append(r.writers, writer)
	return nil
}
