// Translates token ids with a LiteRT export, through LiteRT's C API.
//
//     t2t export --output_dir runs/base --export_dir served/phone --format litert
//     ./translate_litert served/phone/model.tflite 57 1088 6 1
//
// The arguments are the ids of the source, EOS (1) last. It prints the ids and the score
// of the best output. The header and the library come with LiteRT; for Android they are
// in the AAR `com.google.ai.edge.litert:litert`.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tflite/c/c_api.h"

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: translate_litert MODEL ID ... 1\n");
    return 2;
  }
  TfLiteModel* model = TfLiteModelCreateFromFile(argv[1]);
  if (model == NULL) return 1;
  TfLiteInterpreter* interpreter = TfLiteInterpreterCreate(model, NULL);

  const int shape[2] = {1, argc - 2};
  int32_t* ids = malloc(sizeof(int32_t) * shape[1]);
  for (int i = 0; i < shape[1]; ++i) ids[i] = atoi(argv[i + 2]);
  if (TfLiteInterpreterResizeInputTensor(interpreter, 0, shape, 2) != kTfLiteOk ||
      TfLiteInterpreterAllocateTensors(interpreter) != kTfLiteOk) {
    return 1;
  }
  TfLiteTensor* input = TfLiteInterpreterGetInputTensor(interpreter, 0);
  if (TfLiteTensorCopyFromBuffer(input, ids, sizeof(int32_t) * shape[1]) != kTfLiteOk ||
      TfLiteInterpreterInvoke(interpreter) != kTfLiteOk) {
    return 1;
  }
  for (int i = 0; i < TfLiteInterpreterGetOutputTensorCount(interpreter); ++i) {
    const TfLiteTensor* output = TfLiteInterpreterGetOutputTensor(interpreter, i);
    const void* data = TfLiteTensorData(output);
    if (TfLiteTensorType(output) == kTfLiteInt32) {  // ids [n, T], the best first
      for (int t = 0; t < TfLiteTensorDim(output, 1); ++t) {
        const int32_t id = ((const int32_t*)data)[t];
        if (id != 0) printf("%d ", id);
      }
    } else {  // scores [n]
      printf("score %f\n", ((const float*)data)[0]);
    }
  }
  free(ids);
  TfLiteInterpreterDelete(interpreter);
  TfLiteModelDelete(model);
  return 0;
}
