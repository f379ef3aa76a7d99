package recipes

import (
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/dlock-go/dlock/recipes/internal/engine"
)

// BackOff says how long to wait after an error of the store, before the next
// try. The types of github.com/cenkalti/backoff, of every major version so far,
// implement it.
type BackOff interface {
	// NextBackOff returns how long to wait; a negative duration means to give
	// up.
	NextBackOff() time.Duration
	// Reset is called before the first wait after a success.
	Reset()
}

// giveUpAfter is how long the store may fail, without a success in between,
// before the default back-off gives up. Without this limit a caller would wait
// for ever if the address of the store is wrong.
const giveUpAfter = time.Minute

func defaultBackOff() BackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(giveUpAfter),
	)
}

// engineBackOff returns newBackOff in the form that the engine needs. If
// newBackOff returns nil, the default back-off takes its place.
func engineBackOff(newBackOff func() BackOff) func() engine.BackOff {
	return func() engine.BackOff {
		if b := newBackOff(); b != nil {
			return b
		}
		return defaultBackOff()
	}
}
