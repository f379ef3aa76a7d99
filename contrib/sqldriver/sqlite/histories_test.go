package sqlite

import (
	"testing"

	"github.com/dlock-go/dlock/internal/history"
)

func TestHistoriesAreLinearizable(t *testing.T) {
	if testing.Short() {
		t.Skip("records histories")
	}
	history.Run(t, history.Store{Of: "sqlite", Config: conformance(), Histories: 1})
}
