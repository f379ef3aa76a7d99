package certify

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/memdriver"
)

func TestMain(m *testing.M) {
	if IsChild() {
		if os.Getenv("DLOCK_DRIVER") == "broken" {
			Child(broken{memdriver.New()})
		}
		Child(memdriver.New())
	}
	os.Exit(leakcheck.After(m.Run()))
}

// broken is a store that lists each queue in reverse order.
type broken struct{ *memdriver.Store }

func (b broken) Isolate(i driver.Isolation) (driver.Connector, func(context.Context) error, error) {
	c, remove, err := b.Store.Isolate(i)
	return backwards{c}, remove, err
}

type backwards struct{ driver.Connector }

func (b backwards) Connect(ctx context.Context) (driver.Session, error) {
	s, err := b.Connector.Connect(ctx)
	return backwardsSession{s}, err
}

type backwardsSession struct{ driver.Session }

func (s backwardsSession) List(ctx context.Context, queue string) ([]driver.Node, error) {
	nodes, err := s.Session.List(ctx, queue)
	slices.Reverse(nodes)
	return nodes, err
}

func run(t *testing.T, o Options) (passed bool, out string, err error) {
	var b strings.Builder
	o.SessionTimeout = time.Second
	passed, err = Run(t.Context(), memdriver.New(), o, &b)
	return passed, b.String(), err
}

func TestASoundStorePasses(t *testing.T) {
	passed, out, err := run(t, Options{Cases: "rule02|rule07|diagnose"})
	require.NoError(t, err)
	assert.True(t, passed, out)
	assert.Contains(t, out, "checking rule02\n")
	assert.Contains(t, out, "rule 2 (names)                    checked in part")
	assert.Contains(t, out, "not checked: Config.RemoveQueue is nil")
	assert.Contains(t, out, "diagnose                          checked (4 cases)")
	assert.NotContains(t, out, "--- ")
	assert.NotContains(t, out, "Config.RemoveNode")
	passed, out, err = run(t, Options{Cases: "rule02/sequence", Verbose: true})
	require.NoError(t, err)
	assert.True(t, passed, out)
	assert.Contains(t, out, "--- PASS: Certify/rule02")
}

func TestABrokenStoreFails(t *testing.T) {
	passed, out, err := run(t, Options{Driver: "broken", Cases: "rule01/sequential"})
	require.NoError(t, err)
	assert.False(t, passed)
	assert.Contains(t, out, "rule 1 (order) broken: ")
	assert.Contains(t, out, "why it matters: ")
}

func TestAMistypedCaseIsSaid(t *testing.T) {
	passed, _, err := run(t, Options{Cases: "rule99"})
	assert.False(t, passed)
	assert.ErrorContains(t, err, `-run "rule99"`)
}

// recording is a connector that records which parts of its store are removed.
type recording struct {
	driver.Connector
	removed *[]string
	err     error
}

func (r recording) Isolate(i driver.Isolation) (driver.Connector, func(context.Context) error, error) {
	return r, func(context.Context) error {
		*r.removed = append(*r.removed, i.Name)
		return r.err
	}, nil
}

func TestPartsThatTheChildHasLeftAreRemoved(t *testing.T) {
	var removed []string
	require.NoError(t, removeRest(recording{removed: &removed}, strings.NewReader("a\nb\n-a\nc\n")))
	assert.Equal(t, []string{"b", "c"}, removed)
	err := removeRest(recording{removed: &removed, err: errors.New("denied")}, strings.NewReader("a\n"))
	assert.ErrorContains(t, err, `the part "a" stays in the store: denied`)
}

func TestRunEndsWithItsContextAndRemovesTheParts(t *testing.T) {
	var removed []string
	ctx, cancel := context.WithCancel(t.Context())
	out := writer(func(text string) {
		if strings.Contains(text, "checking") {
			cancel()
		}
	})
	_, err := Run(ctx, recording{memdriver.New(), &removed, nil}, Options{SessionTimeout: time.Second}, out)
	require.ErrorIs(t, err, context.Canceled)
	assert.NotEmpty(t, removed)
}

type writer func(text string)

func (w writer) Write(p []byte) (int, error) {
	w(string(p))
	return len(p), nil
}

func TestADriverThatCannotSeparateAPartIsSaid(t *testing.T) {
	_, err := Run(t.Context(), backwards{}, Options{}, nil)
	require.ErrorContains(t, err, "cannot separate a part of the store")
}
