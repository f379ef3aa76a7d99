package handmade

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/internal/pgtest"
)

// TestMain is also the main function of the child processes.
func TestMain(m *testing.M) {
	redis.SetLogger(silent{})
	slog.SetDefault(slog.New(slog.DiscardHandler))
	if text := os.Getenv(childVariable); text != "" {
		os.Exit(runChild(text))
	}
	os.Exit(leakcheck.After(pgtest.Main(m)))
}

// silent is a logger that discards go-redis's messages about failed dials.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// errStale is returned for a write with an outdated token.
var errStale = errors.New("stale token")

// A resource is what the lock protects, for example another service. It refuses
// a write whose token is below that of an earlier one. Locks without tokens
// offer 0, so it cannot refuse their writes.
type resource struct {
	token   int64 // highest so far
	marks   fence.Marks
	writers []string
}

// write refuses a stale token, or list of tokens if the lock has one.
func (r *resource) write(writer string, token int64, tokens []int64) error {
	if tokens != nil && r.marks.DoAll("stock/42", tokens, func() error { return nil }) != nil {
		return errStale
	}
	if token < r.token {
		return errStale
	}
	r.token = token
	r.writers = append(r.writers, writer)
	return nil
}
