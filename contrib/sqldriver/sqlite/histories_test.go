package sqlite

import (
	"testing"

	"github.com/dlock-go/dlock/internal/longtest/histories"
)

// TestHistoriesAreLinearizable plays faults while four clients lock.
func TestHistoriesAreLinearizable(t *testing.T) {
	histories.Run(t, histories.Store{Config: conformance(), Histories: 1})
}
