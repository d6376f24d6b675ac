// Reads objects, one a line, and says of each what kstatus makes of it.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 1<<20)
	for lines.Scan() {
		object := unstructured.Unstructured{}
		if err := json.Unmarshal(lines.Bytes(), &object.Object); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		numbers(object.Object)
		result, err := status.Compute(&object)
		if err != nil {
			fmt.Println("Error")
			continue
		}
		fmt.Println(result.Status)
	}
}

// Whole numbers are whole numbers, as a client of Kubernetes reads them.
func numbers(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			value[key] = numbers(inner)
		}
	case []any:
		for index, inner := range value {
			value[index] = numbers(inner)
		}
	case float64:
		return int64(value)
	}
	return value
}
