package sqltest

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dlock-go/dlock"
)

func Lock(t testing.TB, m *dlock.RWMutex) *dlock.Lock {
	l, err := m.Lock(t.Context())
	assert.NoError(t, err)
	return l
}

// Unlock releases the lock and fails the test on an error, unless a slow
// machine exceeded the timeout of 2 s.
func Unlock(t testing.TB, l *dlock.Lock) {
	t.Helper()
	began := time.Now()
	if err := l.Unlock(); err != nil && (!errors.Is(err, dlock.ErrUnavailable) || time.Since(began) < 2*time.Second) {
		t.Error(err)
	}
}
