package history

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/dlock-go/dlock/recipes"
)

// ledger records the trace hooks of a call, whose context carries the ledger.
type ledger struct {
	call      string
	mode      recipes.Mode
	cancelled bool // the caller may cancel the call

	mu    sync.Mutex
	hooks []string // guarded by mu
}

type ledgerKey struct{}

// calling returns a context with a ledger, which is checked unless the call is
// nested.
func (r *run) calling(ctx context.Context, a *attempt) context.Context {
	l := &ledger{cancelled: a.limit > 0 && !a.limited}
	if a.within == nil {
		l.call, l.mode = fmt.Sprintf("actor %d: %v", a.actor, a), a.mode
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ledgers = append(r.ledgers, l)
	}
	return context.WithValue(ctx, ledgerKey{}, l)
}

func (r *run) hooks() *recipes.Trace {
	return &recipes.Trace{
		Started:      func(ctx context.Context, i recipes.StartedInfo) { r.hook(ctx, "started", i.Mode, nil) },
		Granted:      func(ctx context.Context, i recipes.GrantedInfo) { r.hook(ctx, "granted", i.Mode, nil) },
		Failed:       func(ctx context.Context, i recipes.FailedInfo) { r.hook(ctx, "failed", i.Mode, i.Err) },
		Released:     func(ctx context.Context, i recipes.ReleasedInfo) { r.hook(ctx, "released", i.Granted, i.Err) },
		Lost:         func(ctx context.Context, i recipes.LostInfo) { r.hook(ctx, "lost", i.Granted, i.Err) },
		Connected:    func(_ context.Context, i recipes.ConnectedInfo) { r.judgeText(i.Err) },
		SessionEnded: func(_ context.Context, i recipes.SessionEndedInfo) { r.judgeText(i.Err) },
		Retrying:     func(_ context.Context, i recipes.RetryingInfo) { r.judgeText(i.Err) },
		Downgraded:   func(_ context.Context, i recipes.DowngradedInfo) { r.judgeText(i.Err) },
		Reaped:       func(_ context.Context, i recipes.ReapedInfo) { r.judgeText(i.Err) },
	}
}

func (r *run) hook(ctx context.Context, name string, mode recipes.Mode, err error) {
	l, _ := ctx.Value(ledgerKey{}).(*ledger)
	if l == nil {
		l = new(ledger) // for a nested call, and never checked
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hooks = append(l.hooks, name)
	if l.call != "" && mode != l.mode {
		r.fail("%s: the hook %s says %v", l.call, name, mode)
	}
	if (name == "released" || name == "lost") && ctx.Err() != nil {
		r.fail("%s: the context of the hook %s has ended", l.call, name)
	}
	if !l.cancelled {
		r.judgeText(err)
	}
}

func (r *run) judgeText(err error) {
	if err != nil && strings.Contains(err.Error(), context.Canceled.Error()) {
		r.fail("nobody has cancelled anything: %v", err)
	}
}

// judgeHooks must be called when all clients are closed.
func (r *run) judgeHooks() {
	for _, l := range r.ledgers {
		all := strings.Join(l.hooks, " ")
		if !slices.Contains([]string{"started failed", "started granted released", "started granted lost"}, all) {
			r.fail("%s has run the hooks %q", l.call, all)
		}
	}
}
