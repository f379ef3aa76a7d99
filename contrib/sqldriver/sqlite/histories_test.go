package sqlite

import (
	"testing"

	"github.com/dlock-go/dlock/internal/histories"
)

func TestHistoriesAreLinearizable(t *testing.T) {
	if testing.Short() {
		t.Skip("records histories")
	}
	histories.Run(t, histories.Store{Of: "sqlite", Config: conformance(), Histories: 1})
}
