//go:build !linux && !darwin

package demo

import "os"

func columnsOf(*os.File) int { return 0 }
