package diagnose_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/diagnose"
	"github.com/dlock-go/dlock/memdriver"
)

// connector is the connector of an imaginary driver.
type connector struct{ driver.Connector }

func (c connector) Diagnose(ctx context.Context, report func(driver.Finding)) error {
	return diagnose.Run(ctx, diagnose.Store{
		Connector: c,
		Timeout:   10 * time.Second,
		Local:     "the memory of this process",
		Inspect: func(_ context.Context, _ driver.Session, report func(driver.Finding)) {
			report(driver.Finding{Check: driver.CheckSettings, Level: driver.Warning,
				Text: "the store has fsync off", Advice: "set fsync=on"})
		},
	}, report)
}

func ExampleRun() {
	err := driver.Diagnose(context.Background(), connector{memdriver.New()}, func(f driver.Finding) {
		if f.Level != driver.OK {
			fmt.Printf("%v: %s: %s\n  %s\n", f.Level, f.Check, f.Text, f.Advice)
		}
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// warning: settings: the store has fsync off
	//   set fsync=on
	// unknown: sequences: this driver does not check them
	//   compare the server with the package documentation of the driver
}
